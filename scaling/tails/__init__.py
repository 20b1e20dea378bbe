"""Best of N: exact curves inside the data, tails beyond it."""
