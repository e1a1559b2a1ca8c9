package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// installer brings clients onto the machine, into the cache, each once.
type installer struct {
	cache string // absolute
	root  string // of the repository
	once  map[string]func() error
	log   *os.File
}

// step runs an installation once; what belongs to the same name shares its outcome.
func (in *installer) step(name string, do func() error) error {
	if in.once[name] == nil {
		in.once[name] = sync.OnceValue(do)
	}
	return in.once[name]()
}

// cached makes dir in the cache with build, unless it was made from the same recipe (files) before.
func (in *installer) cached(dir string, files []string, build func(dir string) error) error {
	return in.step(dir, func() error {
		h := sha256.New()
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(in.root, f))
			if err != nil {
				return err
			}
			h.Write(text)
		}
		sum := hex.EncodeToString(h.Sum(nil))
		at := filepath.Join(in.cache, dir)
		mark := filepath.Join(at, ".recipe")
		if was, _ := os.ReadFile(mark); string(was) == sum {
			return nil
		}
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := build(at); err != nil {
			return err
		}
		return os.WriteFile(mark, []byte(sum), 0o644)
	})
}

// command runs a program of the installation; its output goes to a log in the cache.
func (in *installer) command(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = in.log, in.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w (see %s)", name, err, in.log.Name())
	}
	return nil
}

func (in *installer) kcat() error {
	return in.step("kcat", func() error {
		if _, err := exec.LookPath("kcat"); err == nil {
			return nil
		}
		if _, err := exec.LookPath("apt-get"); err != nil {
			return fmt.Errorf("there is no kcat, and no apt-get to install it")
		}
		if err := in.command("", "apt-get", "update", "-qq"); err != nil {
			return err
		}
		return in.command("", "apt-get", "install", "-y", "-qq", "kcat")
	})
}

func (in *installer) python() error {
	return in.cached("python", []string{"interop/python/requirements.txt"}, func(dir string) error {
		if err := in.command(dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		return in.command(dir, "venv/bin/pip", "install", "-q", "-r", filepath.Join(in.root, "interop/python/requirements.txt"))
	})
}

func (in *installer) node() error {
	return in.cached("node", []string{"interop/node/package.json"}, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(in.root, "interop/node/package.json"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o644); err != nil {
			return err
		}
		return in.command(dir, "npm", "install", "--no-audit", "--no-fund", "--silent")
	})
}

func (in *installer) java() error {
	err := in.cached("java", []string{"interop/java/pom.xml"}, func(dir string) error {
		return in.command(filepath.Join(in.root, "interop/java"), "mvn", "-q", "-B", "dependency:copy-dependencies",
			"-DoutputDirectory="+filepath.Join(dir, "jars"), "-DbuildDirectory="+filepath.Join(dir, "target"))
	})
	if err != nil {
		return err
	}
	return in.cached("java-agent", []string{"interop/java/pom.xml", "interop/java/Agent.java", "interop/java/Frameworks.java"}, func(dir string) error {
		return in.command(in.root, "javac", "-nowarn", "-cp", filepath.Join(in.cache, "java/jars/*"), "-d", dir, "interop/java/Agent.java", "interop/java/Frameworks.java")
	})
}

// goAgent builds a Go client's agent; the Go tool knows by itself what is new.
func (in *installer) goAgent(module, pkg string) error {
	return in.step("go "+pkg, func() error {
		return in.command(filepath.Join(in.root, module), "go", "build", "-o", in.goBinary(pkg), pkg)
	})
}

func (in *installer) goBinary(pkg string) string {
	return filepath.Join(in.cache, "go", filepath.Base(pkg))
}
