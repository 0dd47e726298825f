"""Whole runs of a method, all nodes in a few arrays: for studies. No gate stands before the data and nothing is sent.

One module a method; the update lines are those of the paper's own file. Nothing that a device runs imports this
package.
"""
