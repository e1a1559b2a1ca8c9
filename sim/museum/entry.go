package main

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"sort"
	"strings"
)

// Entry is one exhibit.
type Entry struct {
	ID       string // as in the list of bugs: a letter and two digits
	Title    string // the mistake
	Where    string // where it happened
	Breaks   string // the property that it violates, with the rule that excludes it
	Schedule string // a schedule that shows it
	Also     string // the second guard that is taken away, too, if one hides the bug
	Hidden   string // why no world shows it, if none does
	Test     string // package and name of the test that shows it, where it is hidden; no world is run then
	Hints    []string
	Changes  []Change
}

// Change replaces lines of one file.
type Change struct {
	File     string // relative to the module's root
	Old, New string // whole lines
}

//go:embed entries
var entryFiles embed.FS

// Entries reads all exhibits, by id.
func Entries() ([]Entry, error) { return readEntries(entryFiles, "entries") }

func readEntries(files fs.FS, dir string) ([]Entry, error) {
	list, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, f := range list {
		text, err := fs.ReadFile(files, path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		e, err := parseEntry(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if f.Name() != e.ID+".txt" {
			return nil, fmt.Errorf("%s: holds the entry %s", f.Name(), e.ID)
		}
		entries = append(entries, e)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].ID < entries[j].ID })
	return entries, nil
}

var idPattern = regexp.MustCompile(`^[A-Z][0-9]{2}[a-z]?$`)

// parseEntry reads an exhibit: lines "name: value", then changes as in a patch
// without line numbers. "@ FILE" begins the changes of a file, "@@" the next
// one in the same file; a line that begins with a space stays, one with - goes, one with + comes.
func parseEntry(text string) (Entry, error) {
	var e Entry
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	n := 0
	for ; n < len(lines) && !strings.HasPrefix(lines[n], "@"); n++ {
		if err := e.header(lines[n]); err != nil {
			return e, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	for n < len(lines) {
		end := n + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "@") {
			end++
		}
		if err := e.change(lines[n], lines[n+1:end]); err != nil {
			return e, fmt.Errorf("line %d: %w", n+1, err)
		}
		n = end
	}
	return e, e.complete()
}

func (e *Entry) header(line string) error {
	if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("%q is no \"name: value\"", line)
	}
	value = strings.TrimSpace(value)
	fields := map[string]*string{"id": &e.ID, "title": &e.Title, "where": &e.Where, "breaks": &e.Breaks,
		"schedule": &e.Schedule, "also": &e.Also, "hidden": &e.Hidden, "test": &e.Test}
	switch field := fields[name]; {
	case name == "hints":
		e.Hints = strings.Fields(value)
	case field == nil:
		return fmt.Errorf("no such field: %q", name)
	case *field != "":
		*field += " " + value // goes on
	default:
		*field = value
	}
	return nil
}

func (e *Entry) change(head string, body []string) error {
	c := Change{}
	switch file, isFile := strings.CutPrefix(head, "@ "); {
	case isFile:
		c.File = strings.TrimSpace(file)
	case head == "@@" && len(e.Changes) > 0:
		c.File = e.Changes[len(e.Changes)-1].File
	default:
		return fmt.Errorf("%q begins no change", head)
	}
	for _, line := range body {
		switch {
		case line == "":
			c.Old += "\n"
			c.New += "\n"
		case line[0] == ' ':
			c.Old += line[1:] + "\n"
			c.New += line[1:] + "\n"
		case line[0] == '-':
			c.Old += line[1:] + "\n"
		case line[0] == '+':
			c.New += line[1:] + "\n"
		default:
			return fmt.Errorf("%q begins with none of space, - and +", line)
		}
	}
	if c.Old == "" || c.Old == c.New {
		return fmt.Errorf("the change of %s changes nothing", c.File)
	}
	e.Changes = append(e.Changes, c)
	return nil
}

func (e *Entry) complete() error {
	switch {
	case !idPattern.MatchString(e.ID):
		return fmt.Errorf("%q is no id", e.ID)
	case e.Title == "" || e.Where == "" || e.Breaks == "" || e.Schedule == "":
		return fmt.Errorf("title, where, breaks and schedule are wanted")
	case (e.Hidden == "") != (e.Test == "") || e.Test != "" && len(strings.Fields(e.Test)) != 2:
		return fmt.Errorf("what is hidden from worlds names the package and the test that show it")
	case len(e.Changes) == 0:
		return fmt.Errorf("no changes")
	}
	return nil
}
