package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// print writes rows as a table under the heads, or v as JSON if that was asked for.
func (o *options) print(w io.Writer, v any, heads []string, rows [][]string) error {
	if o.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, s := range r {
			cells[i] = printable(s)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// printable is a name that others chose, as those of groups and clients are, for a terminal: quoted if it would break a table's
// lines or be taken for commands.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// ids joins broker ids for a table.
func ids(of []int32) string {
	s := make([]string, len(of))
	for i, id := range of {
		s[i] = fmt.Sprint(id)
	}
	return strings.Join(s, ",")
}

// keyValues reads key=value arguments.
func keyValues(args []string) (keys []string, values map[string]string, err error) {
	values = map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok || k == "" {
			return nil, nil, fmt.Errorf("%q is not of the form key=value", a)
		}
		if _, twice := values[k]; !twice {
			keys = append(keys, k)
		}
		values[k] = v
	}
	return keys, values, nil
}

// detail makes one error of a Kafka error and the broker's own words about it.
func detail(subject string, err error, message string) error {
	if err == nil {
		return nil
	}
	if message != "" {
		return fmt.Errorf("%s: %s (%w)", subject, message, err)
	}
	return fmt.Errorf("%s: %w", subject, err)
}

// joinErrors joins all errors into one line.
func joinErrors(errs []error) error {
	var lines []string
	for _, e := range errs {
		if e != nil {
			lines = append(lines, e.Error())
		}
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "; "))
}
