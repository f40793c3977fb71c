"""``python -m supervisor``: run the daemon in the foreground."""

from supervisor.entry import main

if __name__ == "__main__":
    main()
