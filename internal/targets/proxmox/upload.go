package proxmox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// uploadTries is how often an upload is begun whose connection is cut. Nothing of it is kept there.
const uploadTries = 3

// An upload is a file on its way to a storage with content import.
type upload struct {
	path    string // of ours
	storage string
	name    string // of theirs
	sum     string // SHA-256, hex
}

// volume is what it is called there.
func (u upload) volume() string { return u.storage + ":import/" + u.name }

// sumOf reads a whole file for its SHA-256.
func sumOf(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, readerOf{ctx, f, nil}); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// An uploadClient sends files to the storages of a node for imports, and removes them. It has no state but the connection and
// is safe for concurrent use.
type uploadClient struct {
	api      *client
	node     string
	storages storageClient
}

// upload sends a file, and waits until the node has proven its sum and has it in the storage. An
// older one of the name is replaced.
func (c uploadClient) upload(ctx context.Context, u upload, sent func(n int64)) error {
	for try := 1; ; try++ {
		task, err := c.send(ctx, u, sent)
		if err == nil {
			_, err = c.api.follow(ctx, task)
		}
		if err == nil || try == uploadTries || !passes(err) {
			return err
		}
		if err := c.api.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// send is one try. Fields stand before the file, whose length is known: pveproxy reads no others.
func (c uploadClient) send(ctx context.Context, u upload, sent func(n int64)) (task upid, err error) {
	f, err := os.Open(u.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	head, tail, kind, err := frame(u)
	if err != nil {
		return "", err
	}
	var here int64
	file := readerOf{ctx, io.LimitReader(f, info.Size()), func(n int64) { here += n; sent(n) }}
	where := fmt.Sprintf("https://%s/api2/json/nodes/%s/storage/%s/upload", c.api.host, c.node, u.storage)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, io.MultiReader(bytes.NewReader(head), file, bytes.NewReader(tail)))
	if err != nil {
		return "", fault.New(fault.Internal, "upload: %w", err)
	}
	req.ContentLength = int64(len(head)) + info.Size() + int64(len(tail))
	req.Header.Set("Content-Type", kind)
	if err := c.api.send(req, &task); err != nil {
		sent(-here) // it is sent again, or not at all
		return "", err
	}
	return task, nil
}

// frame is what stands before and after the file in an upload's body, and the body's type.
func frame(u upload) (head, tail []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range []Param{{"content", "import"}, {"checksum-algorithm", "sha256"}, {"checksum", u.sum}} {
		if err := w.WriteField(field.Key, field.Value); err != nil {
			return nil, nil, "", err
		}
	}
	if _, err := w.CreateFormFile("filename", u.name); err != nil {
		return nil, nil, "", err
	}
	at := b.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return b.Bytes()[:at], b.Bytes()[at:], w.FormDataContentType(), nil
}

// readerOf reads until ctx ends, and tells how much.
type readerOf struct {
	ctx  context.Context
	r    io.Reader
	read func(n int64) // may be nil
}

func (r readerOf) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	if r.read != nil {
		r.read(int64(n))
	}
	return n, err
}

// settle waits for what a crash left under way: the node copies an upload into its storage
// after it has it, and would do so behind our back.
func (c uploadClient) settle(ctx context.Context, vm *inventory.VM) error {
	return c.api.settleIf(ctx, c.node, url.Values{"typefilter": {"imgcopy"}}, func(log string) bool {
		return strings.Contains(log, "/"+ownTag(vm)+"-") || !strings.Contains(log, "target file: ")
	})
}

// removeAll deletes what a crash left of vm's uploads, wherever they were sent.
func (c uploadClient) removeAll(ctx context.Context, vm *inventory.VM) error {
	list, err := c.storages.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if !s.keeps("import") || s.Active != 1 || !isName(s.ID) {
			continue
		}
		var volumes []struct {
			ID string `json:"volid"`
		}
		if err := c.api.get(ctx, "/nodes/"+c.node+"/storage/"+s.ID+"/content", url.Values{"content": {"import"}}, &volumes); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, v := range volumes {
			if strings.HasPrefix(v.ID, s.ID+":import/"+ownTag(vm)+"-") {
				errs = append(errs, c.storages.removeContent(ctx, v.ID, s.ID))
			}
		}
	}
	return errors.Join(errs...)
}
