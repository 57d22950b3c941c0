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

// uploadTries is the maximum number of uploads of a file. An aborted upload leaves nothing on the node.
const uploadTries = 3

// upload is a file for a storage with content import.
type upload struct {
	path    string // local path
	storage string // storage of the node
	name    string // file name in the storage
	sum     string // SHA-256 in hex
}

// volumeID returns the volume ID of the uploaded file.
func (u upload) volumeID() string { return u.storage + ":import/" + u.name }

// sumOf returns the SHA-256 of a file in hex.
func sumOf(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, ctxReader{ctx, f, nil}); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// uploadClient uploads files for imports, and removes them. It is safe for concurrent use.
type uploadClient struct {
	api      *client       // client of the node
	node     string        // node that receives uploads
	storages storageClient // removes uploads
}

// uploadFile uploads a file, and waits until the node has verified its hash and moved it to the
// storage. It replaces an older
// file with that name. After a temporary error it uploads the file again, up to uploadTries times.
//
// sent receives the number of bytes, and a negative number if the upload is repeated.
func (c uploadClient) uploadFile(ctx context.Context, u upload, sent func(n int64)) error {
	for try := 1; ; try++ {
		task, err := c.sendFile(ctx, u, sent)
		if err == nil {
			_, err = c.api.awaitTask(ctx, task)
		}
		if err == nil || try == uploadTries || !isTemporary(err) {
			return err
		}
		if err := c.api.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// sendFile is one attempt of an upload. pveproxy requires the fields before the file, and a
// Content-Length.
func (c uploadClient) sendFile(ctx context.Context, u upload, sent func(n int64)) (task upid, err error) {
	f, err := os.Open(u.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	head, tail, kind, err := multipartFrame(u)
	if err != nil {
		return "", err
	}
	var here int64
	file := ctxReader{ctx, io.LimitReader(f, info.Size()), func(n int64) { here += n; sent(n) }}
	where := fmt.Sprintf("https://%s/api2/json/nodes/%s/storage/%s/upload", c.api.host, c.node, u.storage)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, io.MultiReader(bytes.NewReader(head), file, bytes.NewReader(tail)))
	if err != nil {
		return "", fault.New(fault.Internal, "upload: %w", err)
	}
	req.ContentLength = int64(len(head)) + info.Size() + int64(len(tail))
	req.Header.Set("Content-Type", kind)
	if err := c.api.send(req, &task); err != nil {
		sent(-here) // the bytes are sent again, or the upload has failed
		return "", err
	}
	return task, nil
}

// multipartFrame returns the parts of an upload's body before and after the file, and its content type.
func multipartFrame(u upload) (head, tail []byte, kind string, err error) {
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

// ctxReader is a reader that fails when ctx has ended, and reports the bytes read.
type ctxReader struct {
	ctx    context.Context // checked before each read
	r      io.Reader       // source of the bytes
	report func(n int64)   // may be nil
}

// Read implements io.Reader.
func (r ctxReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	if r.report != nil {
		r.report(int64(n))
	}
	return n, err
}

// awaitCopies waits for copies of a crashed delivery: the node copies a received upload to its storage
// in a task, after the
// request has ended.
func (c uploadClient) awaitCopies(ctx context.Context, vm *inventory.VM) error {
	return c.api.awaitTasksIf(ctx, c.node, url.Values{"typefilter": {"imgcopy"}}, func(log string) bool {
		return strings.Contains(log, "/"+ownTag(vm)+"-") || !strings.Contains(log, "target file: ")
	})
}

// removeAll removes vm's remaining uploads from all storages.
func (c uploadClient) removeAll(ctx context.Context, vm *inventory.VM) error {
	list, err := c.storages.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if !s.hasContent("import") || s.Active != 1 || !isName(s.ID) {
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
