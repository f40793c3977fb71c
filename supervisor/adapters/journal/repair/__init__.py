"""Finds damage to the journal's file, keeps the damaged file beside, and puts right what it can."""
