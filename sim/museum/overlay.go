package main

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// apply returns the changed files of an exhibit by name, read from the tree at
// root. Every change must match exactly once, and leave formatted Go.
func (e *Entry) apply(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range e.Changes {
		text, ok := files[c.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(c.File))); err != nil {
				return nil, fmt.Errorf("%s: %w", e.ID, err)
			}
		}
		changed, err := replaceOnce(string(text), c.Old, c.New)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", e.ID, c.File, err)
		}
		files[c.File] = []byte(changed)
	}
	for name, text := range files {
		formatted, err := format.Source(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s with the bug in it: %w", e.ID, name, err)
		}
		if string(formatted) != string(text) {
			return nil, fmt.Errorf("%s: %s with the bug in it is not formatted", e.ID, name)
		}
	}
	return files, nil
}

// replaceOnce replaces whole lines that must occur exactly once.
func replaceOnce(text, old, with string) (string, error) {
	text = "\n" + text
	old, with = "\n"+old, "\n"+with
	switch n := strings.Count(text, old); n {
	case 1:
		return strings.Replace(text, old, with, 1)[1:], nil
	case 0:
		return "", fmt.Errorf("no longer has these lines:%s", old)
	default:
		return "", fmt.Errorf("has these lines %d times:%s", n, old)
	}
}

// writeOverlay writes the changed files and the overlay that names them to a
// directory, and returns the overlay's name and the packages that change.
func (e *Entry) writeOverlay(root, dir string) (overlay string, packages []string, err error) {
	files, err := e.apply(root)
	if err != nil {
		return "", nil, err
	}
	replace := map[string]string{}
	seen := map[string]bool{}
	for name, text := range files {
		with := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(with, text, 0o644); err != nil {
			return "", nil, err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = with
		if pkg := "./" + filepath.ToSlash(filepath.Dir(name)); !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, pkg)
		}
	}
	sort.Strings(packages)
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, packages, os.WriteFile(overlay, text, 0o644)
}
