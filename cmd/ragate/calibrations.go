package main

import (
	"fmt"
	"strings"

	"ragate/gates/semantic"
	"ragate/inference"
)

// modelNames are the names that a reference file may call a model by: with its owner, without, and the catalogue's others.
func modelNames(i inference.Info) []string {
	names := append([]string{i.Source}, i.Aliases...)
	if _, short, ok := strings.Cut(i.Source, "/"); ok {
		names = append(names, short)
	}
	return names
}

// uncalibrated warns where the references have no thresholds for the embedder; "" where they have.
func uncalibrated(set *semantic.Set, embedder inference.Info) string {
	if _, ok := set.For(modelNames(embedder)...); ok {
		return ""
	}
	return fmt.Sprintf("the reference queries have thresholds for %s and none for %s: careful ones were found from the references alone; calibrate a policy for it with ragate calibrate query",
		strings.Join(set.Embedders(), " and "), embedder.Source)
}
