"""No orphan: what owners have started is found by its labels, and removed when they are dead.

`reaper` waits beside each owner for its death, `sweep` then removes what it had, `survey` shows all there is.
"""
