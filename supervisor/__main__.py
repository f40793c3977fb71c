"""``python -m supervisor``: run the daemon in the foreground.

These few lines are all that the zygote's children could ever import again of the daemon: for a
main module of this name multiprocess does not even do that.
"""

from supervisor.entry import main

if __name__ == "__main__":
    main()
