package segment

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"lockstep/core"
)

// metadataName is the file in each log's directory that says whose it is. The
// directory's name does not, once a topic is deleted and made again.
const metadataName = "partition.metadata"

// Suffixes of directories in the data directory.
const (
	deletedSuffix = ".deleted" // being deleted
	straySuffix   = ".stray"   // of a log whose name another topic id took over
)

// dirName is the name of a log's directory, which is Kafka's: topic-index.
func dirName(topic string, index int32) string { return topic + "-" + strconv.Itoa(int(index)) }

// formatMetadata is lines of "key: value" as Kafka has them, and a CRC-32C of the lines before it.
func formatMetadata(id core.Partition, topic string) []byte {
	text := fmt.Sprintf("version: 1\ntopic: %s\npartition: %d\ntopic_id: %s\n", topic, id.Index, hex.EncodeToString(id.Topic[:]))
	return fmt.Appendf([]byte(text), "crc32c: %08x\n", crc32.Checksum([]byte(text), castagnoli))
}

func parseMetadata(name string, b []byte) (id core.Partition, topic string, err error) {
	fail := func(reason string) (core.Partition, string, error) {
		return core.Partition{}, "", corrupt(name, 0, "%s", reason)
	}
	values := map[string]string{}
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			return fail("not lines of key: value")
		}
		values[key] = value
	}
	if v := values["version"]; v != "1" {
		return core.Partition{}, "", fmt.Errorf("%s: %w: version %q", name, ErrFormat, v)
	}
	index, err := strconv.ParseInt(values["partition"], 10, 32)
	if err != nil {
		return fail("no partition index")
	}
	raw, err := hex.DecodeString(values["topic_id"])
	if err != nil || len(raw) != len(id.Topic) {
		return fail("no topic id")
	}
	copy(id.Topic[:], raw)
	id.Index, topic = int32(index), values["topic"]
	if string(formatMetadata(id, topic)) != string(b) {
		return fail("CRC is wrong")
	}
	return id, topic, nil
}
