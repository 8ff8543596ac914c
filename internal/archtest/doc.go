// Package archtest holds the architecture as a test: which package may import which, and who may read the environment. The table in
// its test is the one place where a new edge is allowed, with the reason why.
package archtest
