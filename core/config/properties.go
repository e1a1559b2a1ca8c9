package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseProperties parses a file in the format of Java's properties, as
// server.properties is: name=value, name:value or name value; # and ! begin a
// comment line; a line that ends in an odd number of backslashes goes on in
// the next. Unlike Java it refuses a name that is given twice, since one of the
// two would have no effect. Errors give the line.
func ParseProperties(data []byte) (Values, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("not UTF-8 text")
	}
	lines := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	set, lineOf := make(map[string]string), make(map[string]int)
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) {
			line = line[:len(line)-1]
			if i++; i == len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		name, value, err := splitProperty(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if first, twice := lineOf[name]; twice {
			return nil, fmt.Errorf("line %d: %s was given in line %d already", number, name, first)
		}
		set[name], lineOf[name] = value, number
	}
	return NewValues(set), nil
}

// continues reports whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty splits a logical line at its first separator that is not escaped.
func splitProperty(line string) (name, value string, err error) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	if name, err = unescape(line[:end]); err != nil {
		return "", "", err
	}
	if name == "" {
		return "", "", fmt.Errorf("no name before %q", line)
	}
	value, err = unescape(rest)
	return name, value, err
}

// unescape undoes \t, \n, \r, \f, \uXXXX; any other escaped character stands for itself.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf("%q ends inside an escape", s)
			}
			r, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf("%q has a bad \\u escape", s)
			}
			b.WriteRune(rune(r))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
