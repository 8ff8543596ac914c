"""Judges one round of conformance cases. usage: conformance_verdict.py ROUND OUTPUT PENDING

A failure is accepted when its case is listed in PENDING and every complaint of it is about a route that does not exist (404 "there is no
route"). Exit status 1 otherwise.
"""
import re
import sys

name, output, pending_file = sys.argv[1:4]
pending = {line.split("#")[0].strip() for line in open(pending_file, encoding="utf-8")} - {""}
complaints, last = {}, ""
for line in open(output, encoding="utf-8"):
    line = line.rstrip("\n")
    m = re.match(r"FAIL ([^:]+): (.*)", line)
    if m:
        complaints.setdefault(m.group(1), []).append(m.group(2))
    elif line:
        last = line
if not re.match(r"\d+ passed, \d+ failed", last):
    print("conformance %s: the cases did not run to their end: %s" % (name, last))
    sys.exit(1)
bad = 0
for case, lines in sorted(complaints.items()):
    missing_route = all("there is no route" in x or x.startswith("and ") for x in lines)
    if case in pending and missing_route:
        continue
    bad += 1
    for x in lines:
        print("FAIL %s: %s: %s" % (name, case, x))
if name == "defaults":
    for case in sorted(pending - set(complaints)):
        bad += 1
        print("FAIL %s: %s passes: take it off %s" % (name, case, pending_file))
accepted = len(complaints) - bad if name != "defaults" else len(set(complaints) & pending)
print("conformance %s: %s; %d of the failures need a route that does not exist yet" % (name, last, max(accepted, 0)))
sys.exit(1 if bad else 0)
