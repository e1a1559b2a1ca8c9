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

const crcKey = "crc32c: "

// formatMetadata is lines of "key: value" as Kafka has them, and a CRC-32C of the lines before it.
func formatMetadata(id core.Partition, topic string) []byte {
	text := fmt.Sprintf("version: 1\ntopic: %s\npartition: %d\ntopic_id: %s\n", topic, id.Index, hex.EncodeToString(id.Topic[:]))
	return []byte(text + crcLine(text))
}

func crcLine(text string) string {
	return fmt.Sprintf("%s%08x\n", crcKey, crc32.Checksum([]byte(text), castagnoli))
}

func parseMetadata(name string, b []byte) (id core.Partition, topic string, err error) {
	text, _, _ := strings.Cut(string(b), crcKey)
	if text+crcLine(text) != string(b) {
		return id, "", corrupt(name, 0, "CRC is wrong or missing")
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		values[key] = value
	}
	if v := values["version"]; v != "1" {
		return id, "", fmt.Errorf("%s: %w: version %q", name, ErrFormat, v)
	}
	index, err := strconv.ParseInt(values["partition"], 10, 32)
	if err != nil {
		return id, "", corrupt(name, 0, "no partition index")
	}
	raw, err := hex.DecodeString(values["topic_id"])
	if err != nil || len(raw) != len(id.Topic) {
		return id, "", corrupt(name, 0, "no topic id")
	}
	copy(id.Topic[:], raw)
	id.Index = int32(index)
	return id, values["topic"], nil
}
