package pattern

import "testing"

// FuzzRuleFile: whatever a rule file says, it is refused with places, or its rules can be matched.
func FuzzRuleFile(f *testing.F) {
	for _, file := range Default() {
		f.Add(file.Data)
	}
	for _, seed := range []string{
		"", "language: en", "language: no\nrules:\n- {id: a, phrases: [no, null, 1.5, ~]}", "rules: [{id: a, phrases: [hello], examples: [hello], counter_examples: [bye]}]\nlanguage: en",
		"language: en\nrules: [{id: b, patterns: ['(a|b)+', '[', '(?i)x*']}]", "a: &a [*a]", "language: {a: b}", "- 1", "language: en\nlanguage: nl", "language: en\nfillers: [[a]]\n", "\xff\xfe", "? a\n: b",
		"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nlanguage: en", "language: en\nrules: [{id: '', phrases: ['']}]", "--- \n...\n--- 2",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := New([]File{{Name: "x.yaml", Data: data}}, Options{})
		if err != nil {
			if _, ok := err.(Errors); !ok || m != nil {
				t.Fatalf("%q: %T %v", data, err, err)
			}
			return
		}
		for _, text := range []string{"", "hello", "thanks, bye!", "no", string(data[:min(len(data), 100)])} {
			m.Match(text, Context{})
		}
	})
}
