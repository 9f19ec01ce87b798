// Command support makes the images of a test cluster, and is the program of one of them.
//
//	support pause                         waits for its end
//	support image NAME OUT COMMAND TAR…   writes an OCI archive whose layers are the tar files
package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "pause":
		pause()
	case len(args) > 4 && args[0] == "image":
		err = writeImage(args[1], args[2], args[3], args[4:])
	default:
		err = fmt.Errorf("usage: support pause | support image NAME OUT COMMAND TAR…")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "support:", err)
		os.Exit(1)
	}
}

// pause holds the namespaces of a pod, and reaps its orphaned processes.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// object is a JSON object.
type object map[string]any

// archive is an OCI archive that is being written.
type archive struct{ w *tar.Writer }

func (a archive) add(name string, text []byte) error {
	if err := a.w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := a.w.Write(text)
	return err
}

// blob adds an object, and returns its descriptor.
func (a archive) blob(kind string, v object) (object, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	name := hex.EncodeToString(sum[:])
	return object{"mediaType": kind, "digest": "sha256:" + name, "size": len(text)}, a.add("blobs/sha256/"+name, text)
}

// layer adds a tar file, and returns its descriptor.
func (a archive) layer(path string) (object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, err
	}
	name := hex.EncodeToString(h.Sum(nil))
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err = a.w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + name, Mode: 0o644, Size: size}); err != nil {
		return nil, err
	}
	_, err = io.Copy(a.w, f)
	return object{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + name, "size": size}, err
}

func writeImage(name, out, command string, layers []string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	a := archive{tar.NewWriter(f)}
	var list []object
	var ids []any
	for _, path := range layers {
		d, err := a.layer(path)
		if err != nil {
			return err
		}
		list, ids = append(list, d), append(ids, d["digest"])
	}
	config, err := a.blob("application/vnd.oci.image.config.v1+json", object{
		"architecture": runtime.GOARCH, "os": "linux", "rootfs": object{"type": "layers", "diff_ids": ids},
		"config": object{"Entrypoint": strings.Fields(command), "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin"}},
	})
	if err != nil {
		return err
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := a.blob(kind, object{"schemaVersion": 2, "mediaType": kind, "config": config, "layers": list})
	if err != nil {
		return err
	}
	manifest["annotations"] = object{"io.containerd.image.name": name}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []object{manifest}})
	if err != nil {
		return err
	}
	if err = a.add("index.json", index); err != nil {
		return err
	}
	if err = a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err = a.w.Close(); err != nil {
		return err
	}
	return f.Close()
}
