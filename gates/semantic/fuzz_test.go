package semantic

import "testing"

// FuzzReferenceFile: whatever a reference file says, it is refused with places, or its set can be indexed and asked.
func FuzzReferenceFile(f *testing.F) {
	f.Add(Default())
	for _, seed := range []string{
		"", "version: 1", "version: '1'\ncategories: []", "version: {a: b}", "a: &a [*a]", "version: '1'\nconversational_words: {en: [hello, 'two words', no]}",
		"version: '1'\nmethods: {default: margin, margin: {threshold: .nan}}", "version: '1'\nmethods: {default: combined, combined: {top_k: -1, weights: {x: .inf}}}",
		"version: '1'\ncategories:\n- {id: a, kind: chitchat, references: {en: [hi]}}\n- {id: a, kind: knowledge, references: {en: [null, hi]}}", "\xff", "- a", "version: 1\nversion: 2",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse(data)
		if err != nil {
			if _, ok := err.(Errors); !ok || set != nil {
				t.Fatalf("%q: %T %v", data, err, err)
			}
			return
		}
		set.Fingerprint("model")
		const dim = 4
		vectors := make([]float32, dim*len(set.References))
		for i := range set.References {
			vectors[i*dim+i%dim] = 1
		}
		if _, err := NewIndex(set, vectors, dim); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
	})
}
