// Package controller keeps the cluster's metadata: the records of the metadata
// log, the Image that committed records build, and the Controller, which
// decides what records to write.
//
// Every broker has an Image and applies committed records to it, in order
// (rule 12). The broker that leads the metadata quorum also runs a Controller:
// it takes requests as kmsg values, checks them against a speculative copy of
// the image (the committed one and everything proposed since), proposes
// records, and answers when they are committed. When leadership is lost the
// speculative copy is thrown away and everything unanswered gets
// NOT_CONTROLLER; nothing has to be undone, because nothing visible was done.
//
// What it promises: the same image from the same records on every broker; a
// partition's epochs only rise; its in-sync set is part of its replicas; its
// leader comes from the in-sync set or the eligible leader replicas, unless an
// unclean election was allowed, which is logged as loudly as can be (rules 7, 8
// and 9; KIP-497, KIP-841, KIP-966). A record of an unknown type or version is
// an error that must stop the broker.
//
// Where to start: record.go and codec.go for the records, image.go for what
// they build, controller.go for the life of a request, and one file for each
// kind of request: create_topics.go, delete_topics.go, create_partitions.go,
// configs.go, registration.go, heartbeat.go, alter_partition.go,
// elect_leaders.go, producer_ids.go. leaders.go holds the one place where a
// leader is chosen, placement.go the one where replicas are placed.
//
// The package is pure. It imports core, core/config, kmsg and btree.
package controller
