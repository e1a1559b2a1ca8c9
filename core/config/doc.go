// Package config is the table of every configuration that Lockstep accepts,
// under Kafka's own names: type, default, valid values, documentation, whether
// it may be changed at run time, and which broker setting gives a topic
// setting its default. A name that is not in the table is refused by name; a
// name that is in it has an effect.
//
// An effective value is looked for in this order (KIP-226): the topic's own
// override, the broker's dynamic setting, the cluster-wide dynamic default,
// the broker's static file, the built-in default. Layers holds the middle
// three. TopicConfig and BrokerConfig are the same values as plain Go structs,
// which is what the rest of the code reads.
//
// Start at defs_topic.go and defs_broker.go for the tables, resolve.go for the
// order of sources, alter.go for AlterConfigs and IncrementalAlterConfigs.
//
// The package is pure; it imports kmsg for the protocol's enumerations only.
package config
