package group

import (
	"errors"
	"regexp"
	"regexp/syntax"
)

// maxPattern bounds a pattern's program: matching takes time in proportion to it, and is done while others wait.
const maxPattern = 2000

// checkPattern says whether a subscription's pattern can be matched. Its syntax is RE2, as that of KIP-848.
func checkPattern(pattern string) error {
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return err // of what the client sent, not of what is around it
	}
	re, err := syntax.Parse(whole(pattern), syntax.Perl)
	if err != nil {
		return err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return err
	}
	if len(prog.Inst) > maxPattern {
		return errors.New("it is too large")
	}
	return nil
}

// whole is a pattern that has to match all of a name.
func whole(pattern string) string { return `\A(?:` + pattern + `)\z` }

// match returns the topics whose names match a pattern, sorted. Internal topics are matched as others are, as in Kafka:
// a client that wants none of them asks by another pattern.
func (c *Coordinator) match(pattern string) (topics []string) {
	re, err := regexp.Compile(whole(pattern))
	if err != nil {
		return nil // was checked when it came; a later version may know more
	}
	c.topics.TopicNames(func(name string) bool {
		if re.MatchString(name) {
			topics = append(topics, name)
		}
		return true
	})
	return topics
}
