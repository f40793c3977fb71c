"""What keeps a process of a tool from the rest of the machine, by the kernel's own means.

``policy`` says what a process may do, and what follows from that, pure; ``landlock``, ``seccomp``
and ``namespaces`` are one layer each, over the kernel's calls; ``apply`` puts them round the
process that calls it, in their order. Nothing here undoes a layer: what was applied holds for the
process and for all that it starts, until they end.

Rules: a layer opens nothing that it leaves open; nothing is weakened in silence: what the kernel
lacks raises ``LayerMissing``, or is named by ``landlock.missing``.
"""
