"""The tool host: a small single-threaded process that forks a process for each isolated call.

``start`` is what the zygote runs and becomes the host by an exec, ``entry`` where that begins,
``host`` its loop with the processes that it forked, ``call`` what happens in one; ``wire`` is
shared with the agent. Rules: nothing here imports zmq, asyncio (but a call that needs it),
litellm or the rest of ``workers`` beside the loader, since what is in the host's memory is copied
at every fork.
"""
