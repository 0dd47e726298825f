"""Run by a Python of its own, where decent-bench is installed: milliseconds a round of its DGD on a ring, no noise.

`python decent.py NODES D ROWS ROUNDS` loads nothing of hushgrid, whose Python may be another one.
"""

import sys
import time

FIRST = 3  #: rounds that are not counted


def round_ms(nodes: int, d: int, rows: int, rounds: int) -> float:
    """Milliseconds of processor time a round, without what is done once."""
    import networkx
    import numpy as np
    from decent_array import interoperability
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD
    from decent_bench.costs import LogisticRegressionCost
    from decent_bench.networks import P2PNetwork

    interoperability.set_backend("numpy")
    agents, array = [], interoperability.from_numpy
    for i in range(nodes):
        draw = np.random.default_rng(i)
        A = draw.normal(size=(rows, d))
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        b = (draw.normal(size=rows) > 0).astype(int)
        agents.append(Agent(LogisticRegressionCost([(array(A[j]), array(b[j : j + 1])) for j in range(rows)])))
    network, algorithm = P2PNetwork(networkx.cycle_graph(nodes), agents), DGD(step_size=0.5)
    algorithm.initialize(network)
    for k in range(FIRST):
        algorithm.step(network, k)
    began = time.process_time()
    for k in range(FIRST, FIRST + rounds):
        algorithm.step(network, k)
    return 1e3 * (time.process_time() - began) / rounds


if __name__ == "__main__":
    print(round_ms(*map(int, sys.argv[1:])))
