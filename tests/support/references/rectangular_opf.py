"""An AC optimal power flow written a second time, from a MATPOWER file's own numbers: nothing of the program is used.

Rectangular coordinates V = e + j f, one complex bus admittance matrix, everything in MW and MVAr of the file, Ipopt by
casadi. Semantics: MATPOWER User's Manual, Sections 6.3 (standard and extended OPF), 6.4 (reactive costs, capability
curves, dispatchable loads) and 7.6.3 (dc lines).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

OPTIONS = {"print_level": 0, "sb": "yes", "tol": 1e-10, "bound_relax_factor": 0.0, "max_iter": 500}


@dataclass(frozen=True)
class Optimum:
    cost: float  #: $/h
    bus: list[int]
    price: np.ndarray  #: (nb, 2) $/MWh, $/MVArh
    p_g: np.ndarray  #: (rows of mpc.gen,) MW, 0 out of service
    q_g: np.ndarray
    v: np.ndarray  #: (nb,)
    dc: np.ndarray  #: (rows of mpc.dcline, 4) MW into it at its first bus and out at its second, MVAr given at both


def matrices(text: str) -> dict[str, np.ndarray]:
    """Every `mpc.NAME = [...]` of a file, and baseMVA."""
    text = re.sub(r"%[^\n]*", "", text)
    found = {"baseMVA": np.array(float(re.search(r"mpc\.baseMVA\s*=\s*([0-9.]+)", text)[1]))}
    for name, body in re.findall(r"mpc\.(\w+)\s*=\s*\[([^\]]*)\]", text):
        rows = [re.split(r"[,\s]+", row.strip(" \t,")) for row in re.split(r"[;\n]", body) if row.strip()]
        found[name] = np.array(rows, float)
    return found


def _on(bus: np.ndarray, table: np.ndarray, ends: int, status: int) -> np.ndarray:
    alone = bus[bus[:, 1] == 4, 0]
    return np.flatnonzero((table[:, status] > 0) & ~np.isin(table[:, :ends], alone).any(axis=1))


def _cost(ca: Any, row: np.ndarray, x: Any, epigraphs: list[Any]) -> Any:
    """$/h of x MW; a piecewise-linear one is a new variable above its segments."""
    n = int(row[3])
    if row[0] == 2:
        return sum(c * x ** (n - 1 - k) for k, c in enumerate(row[4 : 4 + n]))
    at, cost = row[4 : 4 + 2 * n : 2], row[5 : 5 + 2 * n : 2]
    slopes = np.diff(cost) / np.diff(at)
    t = ca.MX.sym("t")
    epigraphs.append((t, [t - (c + s * (x - a)) for s, a, c in zip(slopes, at[:-1], cost[:-1], strict=True)]))
    return t


def solve(text: str) -> Optimum:
    import casadi as ca

    m = matrices(text)
    mva, bus = float(m["baseMVA"]), m["bus"][m["bus"][:, 1] != 4]
    nb, number = len(bus), {int(b): k for k, b in enumerate(bus[:, 0])}
    on, lines = _on(m["bus"], m["gen"], 1, 7), _on(m["bus"], m["branch"], 2, 10)
    gen, branch = m["gen"][on], m["branch"][lines]
    at = [number[int(b)] for b in gen[:, 0]]
    i, j = ([number[int(b)] for b in branch[:, k]] for k in (0, 1))

    # Currents at both ends of each line, from its pi circuit behind an ideal transformer.
    y = 1 / (branch[:, 2] + 1j * branch[:, 3])
    a = np.where(branch[:, 8] == 0, 1, branch[:, 8]) * np.exp(1j * np.deg2rad(branch[:, 9]))
    ytt = y + 0.5j * branch[:, 4]
    yff, yft, ytf = ytt / np.abs(a) ** 2, -y / np.conj(a), -y / a

    e, f, p, q = (ca.MX.sym(name, size) for name, size in (("e", nb), ("f", nb), ("p", len(gen)), ("q", len(gen))))
    x, low, high = [e, f, p, q], [-2 * np.ones(2 * nb)], [2 * np.ones(2 * nb)]
    low += [gen[:, 9], gen[:, 4]]
    high += [gen[:, 8], gen[:, 3]]
    start = [
        np.ones(nb),
        np.zeros(nb),
        *(np.clip((a_ + b_) / 2, -1e4, 1e4) for a_, b_ in zip(low[1:], high[1:], strict=True)),
    ]
    rows: list[tuple[Any, Any, Any]] = []

    def times(real: np.ndarray, imag: np.ndarray, re_: Any, im_: Any) -> tuple[Any, Any]:
        return ca.DM(real) * re_ - ca.DM(imag) * im_, ca.DM(real) * im_ + ca.DM(imag) * re_

    def power(own: list[int], other: list[int], same: np.ndarray, across: np.ndarray) -> tuple[Any, Any]:
        """MW and MVAr into the lines at this end: V conj(I)."""
        ire, iim = (
            u + v
            for u, v in zip(
                times(same.real, same.imag, e[own], f[own]),
                times(across.real, across.imag, e[other], f[other]),
                strict=True,
            )
        )
        return mva * (e[own] * ire + f[own] * iim), mva * (f[own] * ire - e[own] * iim)

    from_end, to_end = power(i, j, yff, yft), power(j, i, ytt, ytf)
    size = e**2 + f**2
    p_out, q_out = ca.DM(bus[:, 4]) * size + ca.DM(bus[:, 2]), -ca.DM(bus[:, 5]) * size + ca.DM(bus[:, 3])

    def summed(ends: list[int], values: Any) -> Any:
        return ca.DM.triplet(ends, list(range(len(ends))), ca.DM.ones(len(ends)), nb, len(ends)) @ values

    p_out += summed(i, from_end[0]) + summed(j, to_end[0]) - summed(at, p)
    q_out += summed(i, from_end[1]) + summed(j, to_end[1]) - summed(at, q)

    costs: list[Any] = []
    epigraphs: list[Any] = []
    for k, row in enumerate(on):
        costs.append(_cost(ca, m["gencost"][row], p[k], epigraphs))
        if len(m["gencost"]) == 2 * len(m["gen"]):
            costs.append(_cost(ca, m["gencost"][len(m["gen"]) + row], q[k], epigraphs))
        if gen[k, 9] < 0 and gen[k, 8] == 0 and (gen[k, 3] == 0) != (gen[k, 4] == 0):  # a dispatchable load
            rows.append((q[k] - (gen[k, 3] + gen[k, 4]) / gen[k, 9] * p[k], 0, 0))
        if gen.shape[1] > 15 and gen[k, 10] != gen[k, 11]:  # above and below the lines of its capability curve
            p1, p2, q1min, q1max, q2min, q2max = gen[k, 10:16]
            part = (p[k] - p1) / (p2 - p1)
            rows.append((q[k] - q1max - part * (q2max - q1max), -np.inf, 0))
            rows.append((q[k] - q1min - part * (q2min - q1min), 0, np.inf))

    dcline = m.get("dcline", np.zeros((0, 17)))
    dc_on = _on(m["bus"], dcline, 2, 2) if len(dcline) else []
    sent, given_f, given_t = (ca.MX.sym(name, len(dc_on)) for name in ("sent", "qf", "qt"))
    received = sent - ca.DM(dcline[dc_on, 15]) - ca.DM(dcline[dc_on, 16]) * sent
    x += [sent, given_f, given_t]
    low += [np.where(dcline[dc_on, 9] >= 0, dcline[dc_on, 9], -np.inf), dcline[dc_on, 11], dcline[dc_on, 13]]
    high += [np.where(dcline[dc_on, 10] >= 0, dcline[dc_on, 10], np.inf), dcline[dc_on, 12], dcline[dc_on, 14]]
    start += [np.zeros(len(dc_on))] * 3
    for k, row in enumerate(dc_on):  # limits of a flow backwards hold where it comes from
        rows.append(
            (received[k], *(dcline[row, 9:11] if dcline[row, 9] < 0 or dcline[row, 10] < 0 else (-np.inf, np.inf)))
        )
        if "dclinecost" in m:
            costs.append(_cost(ca, m["dclinecost"][row], sent[k], epigraphs))
    if len(dc_on):
        ends = [[number[int(b)] for b in dcline[dc_on, k]] for k in (0, 1)]
        p_out += summed(ends[0], sent) - summed(ends[1], received)
        q_out += -summed(ends[0], given_f) - summed(ends[1], given_t)

    for t, above in epigraphs:
        x.append(t)
        low.append(np.array([-np.inf]))
        high.append(np.array([np.inf]))
        start.append(np.zeros(1))
        rows += [(one, 0, np.inf) for one in above]
    rows += [(size, bus[:, 12] ** 2, bus[:, 11] ** 2)]
    rated = np.flatnonzero(branch[:, 5] > 0).tolist()
    if rated:
        rate2 = (branch[rated, 5] / mva) ** 2
        rows += [((s[0][rated] ** 2 + s[1][rated] ** 2) / mva**2, -np.inf, rate2) for s in (from_end, to_end)]
    if branch.shape[1] > 12:
        for column, side in ((11, -1), (12, 1)):
            angle = branch[:, column]
            k = np.flatnonzero((np.abs(angle) < 90) & ((branch[:, 11] != 0) | (branch[:, 12] != 0))).tolist()
            if k:
                ik, jk = [i[n] for n in k], [j[n] for n in k]
                cos, sin = e[ik] * e[jk] + f[ik] * f[jk], f[ik] * e[jk] - e[ik] * f[jk]
                rows.append((side * (sin - ca.DM(np.tan(np.deg2rad(angle[k]))) * cos), -np.inf, 0))
    reference = int(np.flatnonzero(bus[:, 1] == 3)[0]) if (bus[:, 1] == 3).any() else 0
    low[0][nb + reference] = high[0][nb + reference] = 0.0
    low[0][reference] = 0.0

    g = ca.vertcat(p_out, q_out, *(row for row, *_ in rows))
    lows, highs = ([np.zeros(2 * nb), *(np.broadcast_to(r[k], r[0].shape[0]) for r in rows)] for k in (1, 2))
    goal = sum(costs)
    scale = 100.0
    solver = ca.nlpsol(
        "opf", "ipopt", {"x": ca.vertcat(*x), "f": goal / scale, "g": g}, {"print_time": 0, "ipopt": OPTIONS}
    )
    found = solver(
        x0=np.concatenate(start),
        lbx=np.concatenate(low),
        ubx=np.concatenate(high),
        lbg=np.concatenate(lows),
        ubg=np.concatenate(highs),
    )
    assert solver.stats()["return_status"] == "Solve_Succeeded", solver.stats()["return_status"]
    at_end = np.array(found["x"]).ravel()
    split = np.split(at_end, np.cumsum([nb, nb, len(gen), len(gen), len(dc_on), len(dc_on), len(dc_on)]))
    whole_p, whole_q, dc = np.zeros(len(m["gen"])), np.zeros(len(m["gen"])), np.zeros((len(dcline), 4))
    whole_p[on], whole_q[on] = split[2], split[3]
    if len(dc_on):
        out = split[4] - dcline[dc_on, 15] - dcline[dc_on, 16] * split[4]
        dc[dc_on] = np.stack([split[4], out, split[5], split[6]], axis=1)
    price = np.array(found["lam_g"]).ravel()[: 2 * nb].reshape(2, nb).T * scale
    return Optimum(
        float(found["f"]) * scale,
        bus[:, 0].astype(int).tolist(),
        price,
        whole_p,
        whole_q,
        np.hypot(split[0], split[1]),
        dc,
    )
