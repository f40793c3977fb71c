"""Coroutines that end only when they are cancelled, and how else a cancellation comes about."""

import asyncio


async def forever():
    """Wait for what never comes."""
    await asyncio.get_running_loop().create_future()


async def cancelled_within():
    """Be cancelled by a task of one's own."""
    inner = asyncio.ensure_future(forever())
    inner.cancel()
    await inner


async def cancels_itself():
    """Cancel the task that one runs in."""
    asyncio.current_task().cancel()
    await forever()
