"""Writes reference.json: what scipy says about the functions of beta.go and interval.go. Run: python reference.py > reference.json"""
import json
import math

import numpy as np
from scipy import special, stats

rng = np.random.default_rng(7)
out = {"beta": [], "quantile": [], "clopper_pearson": [], "upper": [], "student": [], "needed": [], "ndcg": [], "korn_graubard": []}

shapes = [(0.5, 0.5), (1, 1), (2, 3), (0.1, 7), (30, 0.3), (12, 988), (5.5, 4.25), (400, 600), (1, 100000), (50000, 50000), (3, 10000000)]
for a, b in shapes:
    mean, sd = a / (a + b), math.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    for z in (-3, -1, -0.1, 0, 0.5, 2, 4):
        x = mean + z * sd
        if 0 < x < 1:
            out["beta"].append([x, a, b, float(special.betainc(a, b, x))])
    for p in (1e-6, 0.025, 0.05, 0.5, 0.95, 0.975, 0.999999):
        out["quantile"].append([p, a, b, float(stats.beta.ppf(p, a, b))])

for n in (1, 2, 5, 10, 20, 59, 100, 1000, 10003, 1000000):
    for k in sorted({0, 1, n // 100, n // 10, n // 2, n - 1, n}):
        for c in (0.8, 0.95, 0.999):
            # Not binomtest's interval: it stops at an absolute tolerance, which leaves six digits for small rates.
            low = float(stats.beta.ppf((1 - c) / 2, k, n - k + 1)) if k > 0 else 0.0
            high = float(stats.beta.ppf((1 + c) / 2, k + 1, n - k)) if k < n else 1.0
            ci = stats.binomtest(k, n).proportion_ci(confidence_level=c, method="exact")
            assert math.isclose(ci.low, low, rel_tol=1e-3, abs_tol=1e-9) and math.isclose(ci.high, high, rel_tol=1e-3)
            out["clopper_pearson"].append([k, n, c, low, high])
            one = 1.0 if k == n else float(stats.beta.ppf(c, k + 1, n - k))
            out["upper"].append([k, n, c, one])

for df in (1, 2, 3.5, 10, 100, 12345):
    for c in (0.5, 0.9, 0.95, 0.999):
        out["student"].append([c, df, float(stats.t.ppf((1 + c) / 2, df))])

# How many trials a promise takes, by trying every n.
for rate, limit, c in [(0, 0.01, 0.95), (0, 0.002, 0.95), (0, 0.05, 0.9), (0.005, 0.01, 0.95), (0.02, 0.05, 0.95), (0.03, 0.05, 0.99), (0.001, 0.002, 0.8)]:
    n = 1
    while True:
        k = math.ceil(rate * n - 1e-9)
        if k < n and stats.binom.cdf(k, n, limit) <= 1 - c:
            break
        n += 1
    out["needed"].append([rate, limit, c, n])

def dcg(grades, k, gain):
    return sum(gain(g) / math.log2(i + 2) for i, g in enumerate(grades[:k]))

for _ in range(40):
    n = int(rng.integers(1, 25))
    ranked = [int(g) for g in rng.integers(0, 4, n)]
    ideal = ranked + [int(g) for g in rng.integers(0, 4, int(rng.integers(0, 10)))]
    k = int(rng.integers(1, 15))
    for name, gain in (("linear", float), ("exponential", lambda g: 2.0 ** g - 1)):
        best = dcg(sorted(ideal, reverse=True), k, gain)
        if best > 0:
            out["ndcg"].append({"ranked": ranked, "ideal": ideal, "k": k, "gain": name, "want": dcg(ranked, k, gain) / best})

# Korn-Graubard by its formulas, on beta-binomial clusters.
for _ in range(12):
    m = int(rng.integers(2, 60))
    of = rng.integers(1, 12, m)
    count = rng.binomial(of, rng.beta(0.8, 2.0, m))
    n, p, c = int(of.sum()), count.sum() / of.sum(), 0.95
    if 0 < p < 1:
        var = m / (m - 1) * float(((count - p * of) ** 2).sum()) / n**2
        t = stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, m - 1)
        ne = max(1.0, min(float(n), p * (1 - p) / var * t * t))
    else:
        ne = float(m)
    k = p * ne
    low = float(stats.beta.ppf(0.025, k, ne - k + 1)) if k > 0 else 0.0
    high = float(stats.beta.ppf(0.975, k + 1, ne - k)) if k < ne else 1.0
    out["korn_graubard"].append({"count": count.tolist(), "of": of.tolist(), "low": low, "high": high})

print(json.dumps(out, separators=(",", ":")))
