package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseProperties(t *testing.T) {
	v, err := ParseProperties([]byte("# a comment \\\n! another\n\n" +
		"node.id=1\r\n" +
		"  log.dirs = /var/lib/lock\\u0073tep \n" +
		"a:b\n" +
		"listeners PLAINTEXT://:9092,\\\n   PEER://:9093\n" +
		"empty\n" +
		"key\\ with\\=signs = tab\\tend\\\\\n" +
		"last=x\\"))
	require.NoError(t, err)
	require.Equal(t, NewValues(map[string]string{
		"node.id": "1", "log.dirs": "/var/lib/lockstep ", "a": "b", "listeners": "PLAINTEXT://:9092,PEER://:9093",
		"empty": "", "key with=signs": "tab\tend\\", "last": "x",
	}), v)
}

func TestParsePropertiesErrors(t *testing.T) {
	for text, why := range map[string]string{
		"a=1\n\na=2":  "line 3: a was given in line 1 already",
		"=1":          "line 1: no name",
		"a=\\u12":     "ends inside an escape",
		"a=\\uzzzz":   "bad \\u escape",
		"a=\xff":      "not UTF-8",
		"a=1\n\\u12=": "line 2",
	} {
		_, err := ParseProperties([]byte(text))
		require.ErrorContains(t, err, why, text)
	}
}

// escape writes a text so that it means itself wherever it stands.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 'a' && r <= 'z' {
			b.WriteRune(r)
		} else if r < 1<<16 {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

func TestPropertiesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("ab \t\f\\=:#!\n\r\"é世")), 1, 8, -1)
		m := rapid.MapOf(word, word).Draw(t, "entries")
		var file strings.Builder
		for _, e := range NewValues(m) {
			sep := rapid.SampledFrom([]string{"=", ":", " ", "\t=  ", " : ", "\\\n   ="}).Draw(t, "separator")
			file.WriteString(escape(e.Name) + sep + escape(e.Value) + rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"))
		}
		got, err := ParseProperties([]byte(file.String()))
		require.NoError(t, err, file.String())
		require.Equal(t, NewValues(m), got, file.String())
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("a=b\\\n  c\n#x\nk : v\\u0041"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseProperties(data)
		if err != nil {
			return
		}
		for i, e := range v {
			if e.Name == "" || i > 0 && v[i-1].Name >= e.Name {
				t.Fatalf("bad names in %q", v)
			}
		}
	})
}
