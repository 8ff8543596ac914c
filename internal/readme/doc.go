// Package readme holds the documentation to its word: its test runs every command that README.md shows.
package readme
