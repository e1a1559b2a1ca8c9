package config

import (
	"cmp"
	"slices"
)

// Entry is one configured name and its value as text.
type Entry struct{ Name, Value string }

// Values is a set of configured names, sorted by name. It is immutable: With
// and Without return a changed copy. The zero Values is empty.
type Values []Entry

// NewValues makes Values of a map.
func NewValues(m map[string]string) Values {
	v := make(Values, 0, len(m))
	for name, value := range m {
		v = append(v, Entry{name, value})
	}
	slices.SortFunc(v, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

func (v Values) find(name string) (int, bool) {
	return slices.BinarySearchFunc(v, name, func(e Entry, n string) int { return cmp.Compare(e.Name, n) })
}

// Get returns the value configured under exactly this name.
func (v Values) Get(name string) (string, bool) {
	if i, ok := v.find(name); ok {
		return v[i].Value, true
	}
	return "", false
}

// With returns a copy in which name has the value.
func (v Values) With(name, value string) Values {
	i, ok := v.find(name)
	out := make(Values, 0, len(v)+1)
	out = append(append(out, v[:i]...), Entry{name, value})
	if ok {
		i++
	}
	return append(out, v[i:]...)
}

// Without returns a copy that lacks name.
func (v Values) Without(name string) Values {
	i, ok := v.find(name)
	if !ok {
		return v
	}
	return slices.Delete(slices.Clone(v), i, i+1)
}
