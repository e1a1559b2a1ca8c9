package config

// Value is a parsed value.
type Value struct{}

// Def defines one configuration.
type Def struct {
	setTopic func(*TopicConfig, Value)
}

// Parse parses and validates a value.
func (d *Def) Parse(s string) (Value, error) { return Value{}, nil }

type table struct{}

func (t table) get(name string) *Def { return nil }

var topicDefs table

// ParseProperties parses a file in the format of Java's properties, as server.properties is.
func ParseProperties(data []byte) (Values, error) { return nil, nil }

// CheckStatic validates a broker's static configuration and returns it with its names made canonical. An
// unknown name, a topic's name, or a bad value is an error that names it.
func CheckStatic(v Values) (Values, error) { return v, nil }
