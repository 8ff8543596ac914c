package yamltext

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestTextsAreTakenAsWritten(t *testing.T) {
	var f struct {
		Words Texts `yaml:"words"`
	}
	if err := yaml.Unmarshal([]byte("words:\n- no\n- null\n- 010\n- 'on'\n"), &f); err != nil {
		t.Fatal(err)
	}
	want := Texts{{"no", 2}, {"null", 3}, {"010", 4}, {"on", 5}}
	if len(f.Words) != len(want) {
		t.Fatalf("got %v, want %v", f.Words, want)
	}
	for i := range want {
		if f.Words[i] != want[i] {
			t.Errorf("item %d is %v, want %v", i, f.Words[i], want[i])
		}
	}
}

func TestEveryWrongItemIsNamed(t *testing.T) {
	var f struct {
		Words Texts `yaml:"words"`
		Name  Text  `yaml:"name"`
	}
	err := yaml.Unmarshal([]byte("words:\n- a\n- [b]\n- {c: d}\nname: [x]\n"), &f)
	if err == nil {
		t.Fatal("lists and mappings were taken for texts")
	}
	for _, line := range []string{"line 3:", "line 4:", "line 5:"} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("the error does not name %s %v", line, err)
		}
	}
}
