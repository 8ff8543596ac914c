package policy

import "testing"

// FuzzPolicyFile: whatever a policy file says, it is refused, or is a policy that is valid and has a fingerprint.
func FuzzPolicyFile(f *testing.F) {
	for _, seed := range []string{
		"", "name: a", "name: a\non_mismatch: refuse\nquery: {length_rule: strict, glossary: [go], semantic: {threshold: 0.5}}", "name: a\nquery: {semantic: {threshold: .nan}}",
		"name: a\nchunks: {thresholds: {faq: .inf}, min_chunks: -1, max_chunks: 1e9}", "name: ../../a", "a: &a [*a]", "null", "name: ~", "name: a\n---\nname: b", "name: a\nchunks: null", "name: a\nquery: []",
		"name: a\nchunks: {rules: [{id: x, field: y, equals: {a: b}, action: drop}]}", "name: a\nchunks: {rules: [{id: x, field: y, equals: .nan, action: drop}]}", "name: a\nchunks: {rules: [{id: x, field: y, older_than_days: 1e300, action: drop}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("x.yaml", data)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("%q was taken: %v", data, err)
		}
		if len(p.Fingerprint()) < 8 {
			t.Fatalf("%q has no fingerprint", data)
		}
	})
}
