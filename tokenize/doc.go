// Package tokenize turns text into token ids.
package tokenize
