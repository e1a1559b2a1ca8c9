package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"lockstep/bench/load"
	"lockstep/bench/process"
)

//go:embed pom.xml
var pom []byte

// kafka is an installed Apache Kafka.
type kafka struct{ jars string }

// installPatience bounds Maven's downloads.
const installPatience = 15 * time.Minute

// install has Maven fetch Apache Kafka into the user's cache, unless it is there.
func install() (k kafka, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return k, err
	}
	dir := filepath.Join(cache, "lockstep-peer")
	k.jars = filepath.Join(dir, "jars")
	marker := filepath.Join(dir, "pom.xml") // written last: it says that all of it is there
	if have, err := os.ReadFile(marker); err == nil && string(have) == string(pom) {
		return k, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "build"), 0o755)); err != nil {
		return k, err
	}
	if err := os.WriteFile(filepath.Join(dir, "build", "pom.xml"), pom, 0o644); err != nil {
		return k, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), installPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+k.jars)
	cmd.Dir = filepath.Join(dir, "build")
	if out, err := cmd.CombinedOutput(); err != nil {
		return k, fmt.Errorf("Maven could not fetch Apache Kafka: %w\n%s", err, out)
	}
	return k, os.WriteFile(marker, pom, 0o644)
}

// java is a command of Kafka's with the options that its own start script gives it.
func (k kafka) java(class string, args ...string) *exec.Cmd {
	flags := []string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-cp", filepath.Join(k.jars, "*"), class}
	return exec.Command("java", append(flags, args...)...)
}

// settings lays out n brokers under dir, each of which is a controller too, and returns their properties files and addresses. All that
// is not said is Kafka's default.
func settings(dir string, n int) (files, addrs []string, err error) {
	ports, err := process.FreePorts(2 * n)
	if err != nil {
		return nil, nil, err
	}
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, ports[n+i]))
	}
	for i := range n {
		addr := fmt.Sprintf("127.0.0.1:%d", ports[i])
		lines := []string{
			"process.roles=broker,controller",
			fmt.Sprintf("node.id=%d", i+1),
			fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", addr, ports[n+i]),
			"advertised.listeners=PLAINTEXT://" + addr,
			"controller.listener.names=CONTROLLER",
			"controller.quorum.voters=" + strings.Join(voters, ","),
			"log.dirs=" + filepath.Join(dir, fmt.Sprintf("data-%d", i+1)),
			fmt.Sprintf("offsets.topic.replication.factor=%d", n),
		}
		file := filepath.Join(dir, fmt.Sprintf("server-%d.properties", i+1))
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return nil, nil, err
		}
		files, addrs = append(files, file), append(addrs, addr)
	}
	return files, addrs, nil
}

// readyPatience is how long Kafka may take until it serves.
const readyPatience = 2 * time.Minute

// start formats and starts a cluster of n brokers under dir.
func (k kafka) start(dir string, n int) (*load.Side, error) {
	files, addrs, err := settings(dir, n)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	for _, f := range files {
		out, err := k.java("kafka.tools.StorageTool", "format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", f).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
		}
	}
	var servers []*process.Process
	for i, f := range files {
		p, err := process.Quiet(k.java("kafka.Kafka", f), addrs[i])
		if err != nil {
			return nil, err
		}
		servers = append(servers, p)
	}
	s, err := load.NewSide("Kafka", servers)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	return s, s.Await(ctx)
}
