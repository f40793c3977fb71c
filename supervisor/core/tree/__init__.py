"""A tree of supervisors after Erlang/OTP: pure, so time comes in and work to be done goes out.

``specs`` says what a person may ask for, ``words`` what goes in and out, ``intensity`` when it is
too much, ``roster`` keeps children one by one, ``crew`` starts, restarts and ends several at once,
``supervisor`` says what an end means, and ``tree`` holds supervisors together.
"""
