package config

// Layers are the sources of a broker's configuration above the built-in defaults.
type Layers struct {
	Dynamic Values // set for this broker at run time
	Default Values // set for all brokers at run time
	Static  Values // its file and command line
}

// TopicDefaults returns what topics without overrides have.
func (l *Layers) TopicDefaults() TopicConfig { return TopicConfig{} }

// Broker returns the broker's effective configuration.
func (l *Layers) Broker() BrokerConfig { return BrokerConfig{} }
