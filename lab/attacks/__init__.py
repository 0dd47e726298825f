"""What an eavesdropper on every edge recovers from a run: `hushgrid attack`.

An attack reads `Heard` (`transcript.py`): the run's public plan, and every message that carried an iterate. It opens no
other file and sees no data, solution, trajectory or ledger.

To add an attack, add one file to this folder. It has a class that extends `base.Attack` and declares

 - `algorithms`: the types of the `algorithm` sections that it attacks, as kernels/algorithms declares them,
 - `problem`: the type of a plan's public part that it understands,
 - `recover(heard)`: a `base.Recovered`. Its `gradients` are enough: `attack.py` then finds the rows behind them
   (`rows.py`), writes recovered.npz, pictures and the page, and scores what was found. Vectors that are not gradients
   go to `states`, other arrays to `arrays`, sentences for the page to `notes`.

`registry.py` finds it there; no other file names it. All attacks that fit a plan are made, and what they recover is put
together.
"""
