#!/bin/sh
# Looks for known vulnerabilities in what the program calls. Where the database cannot be reached it says so and does not fail:
# a machine without that access must still be able to check everything else.
out=$(go tool govulncheck ./... 2>&1)
code=$?
if [ $code -ne 0 ] && echo "$out" | grep -q 'fetching vulnerabilities'; then
	echo "govulncheck: NOT CHECKED, its database cannot be reached from here"
	exit 0
fi
echo "$out"
exit $code
