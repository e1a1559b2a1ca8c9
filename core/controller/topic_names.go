package controller

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"lockstep/core"
)

const maxTopicName = 249 // a directory's name has 255 bytes, and "-", the partition and a suffix follow

// CheckTopicName reports in words what is wrong with a topic's name, or "" if nothing is.
func CheckTopicName(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name == "." || name == "..":
		return "the name cannot be . or .."
	case len(name) > maxTopicName:
		return "the name is longer than " + strconv.Itoa(maxTopicName) + " characters"
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return "the name has a character other than ASCII letters, digits, '.', '_' and '-'"
		}
	}
	return ""
}

// collides reports whether two names differ in nothing but '.' and '_', which metrics do not tell apart.
func collides(a, b string) bool {
	if len(a) != len(b) || a == b {
		return false
	}
	for i := 0; i < len(a); i++ {
		if a[i] != b[i] && !(dotted(a[i]) && dotted(b[i])) {
			return false
		}
	}
	return true
}

func dotted(c byte) bool { return c == '.' || c == '_' }

// random16 draws 16 random bytes.
func random16(r core.Rand) (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:8], r.Uint64())
	binary.LittleEndian.PutUint64(id[8:], r.Uint64())
	return id
}

// newTopicID draws an id that no topic has, none of Kafka's reserved ones
// (those with 8 leading zero bytes), and none whose text begins with "-", which confuses command lines.
func (c *Controller) newTopicID() core.TopicID {
	for {
		id := core.TopicID(random16(c.settings.Rand))
		reserved := [8]byte(id[:8]) == [8]byte{}
		if !reserved && base64.RawURLEncoding.EncodeToString(id[:])[0] != '-' && c.spec.TopicByID(id) == nil {
			return id
		}
	}
}

// randomClusterID draws a cluster id in Kafka's form: 16 random bytes in URL-safe base64.
func randomClusterID(r core.Rand) string {
	for {
		id := random16(r)
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
