// Package e2e holds tests of the built program, seen from outside: its answers over HTTP against a reference that shares none of its
// code, its start, shutdown and refusals, and its command line. There is nothing to import.
//
//   - answers_test.go: every precision against tools/reference.py, alone and among neighbours;
//   - lifecycle_test.go: start, second start, signals, damaged files;
//   - limits_test.go: settings that refuse requests;
//   - commands_test.go and testdata/script: the command line;
//   - program_test.go: how all of them run the program.
//
// The tests need what `make setup setup-reference` puts into the data folder, and fail without it. They never assert on a duration; what
// a machine does is logged (go test -v).
package e2e
