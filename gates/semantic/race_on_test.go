//go:build race

package semantic

const raceEnabled = true // sync.Pool drops what is put into it at random then
