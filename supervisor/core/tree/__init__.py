"""A tree of supervisors after Erlang/OTP: pure, so time comes in and work to be done goes out.

``tree`` takes one input at a time and holds the supervisors together. ``messages`` has its inputs,
effects and views, ``specs`` what a person may ask for, and how many restarts are too many.
``supervisor`` decides what an exit means, over its ``children``, which has the work on several of
them. ``recording`` keeps the inputs and replays them.
"""
