package kubevirt

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// An upload brings one image into its DataVolume. It looks at what the DataVolume is at, and does what is
// next; so it goes on wherever an earlier one was cut off.
type upload struct {
	*Cluster
	proxy    *proxy
	want     dataVolume
	vm       *inventory.VM
	open     func(context.Context) (*stream, error)
	progress *platform.Progress

	failures int   // transfers that ended in the middle
	last     error // what is wrong, while it may pass
}

// maxFailures is how often an image is sent in vain.
const maxFailures = 5

// stall is how long a transfer may stand still, or the last byte may be without an answer: the proxy
// that answers when it is through has the whole image synced by then.
const stall = 15 * time.Minute

// run returns when CDI has written the image.
func (u *upload) run(ctx context.Context) error {
	if err := u.create(ctx); err != nil {
		return err
	}
	var seen state
	var restarts *int // of the pod that has the image; nil: none has
	deadline := u.now().Add(u.patience)
	for {
		s, err := u.look(ctx)
		if err != nil {
			return err
		}
		switch {
		case s.Status.Phase == "Succeeded":
			return nil
		case s.Status.Phase == "Failed":
			return fault.New(fault.Transient, "CDI gave up%s", s.why()).WithHint("%s", u.describe())
		case s.Status.Phase == "UploadReady" && (restarts == nil || *restarts != s.Status.Restarts):
			taken, err := u.send(ctx)
			if err != nil {
				return err
			}
			if taken {
				restarts, deadline = &s.Status.Restarts, u.now().Add(u.patience)
			}
		}
		if s.Status.Phase != seen.Status.Phase || s.Status.Restarts != seen.Status.Restarts {
			seen, deadline = *s, u.now().Add(u.patience)
		}
		if u.now().After(deadline) {
			return errors.Join(fault.New(fault.Transient, "CDI is at %q and gets nowhere%s", s.Status.Phase, s.why()).WithHint("%s", u.describe()), u.last)
		}
		if err := pause(ctx, u.poll); err != nil {
			return err
		}
	}
}

func (u *upload) describe() string {
	return "kubectl -n " + u.opts.namespace() + " describe datavolume,pvc " + u.want.Metadata.Name
}

// create makes the DataVolume, or finds the one of an earlier upload. One that was for other bytes, or
// that CDI gave up, is replaced.
func (u *upload) create(ctx context.Context) error {
	deadline := u.now().Add(u.patience)
	for {
		err := u.retry(ctx, func() error { return u.client.Create(ctx, volumes, u.opts.namespace(), u.want, nil) })
		if !fault.Is(err, fault.Conflict) {
			return err
		}
		s, lookErr := u.look(ctx)
		switch {
		case fault.Is(lookErr, fault.NotFound): // it went away just now
		case lookErr != nil:
			return lookErr
		case s.Metadata.Annotations[rootNote] == u.want.Metadata.Annotations[rootNote] && s.Status.Phase != "Failed":
			return nil
		default:
			del := u.client.Delete(ctx, volumes, u.opts.namespace(), s.Metadata.Name, kube.Only{UID: s.Metadata.UID})
			if del != nil && !fault.Is(del, fault.NotFound) && !fault.Is(del, fault.Conflict) {
				return del
			}
		}
		if u.now().After(deadline) {
			return err
		}
		if err := pause(ctx, u.poll); err != nil {
			return err
		}
	}
}

// look reads the DataVolume. One that is not of this VM is fault.Conflict.
func (u *upload) look(ctx context.Context) (*state, error) {
	var s state
	err := u.retry(ctx, func() error {
		s = state{}
		return u.client.Read(ctx, volumes, u.opts.namespace(), u.want.Metadata.Name, &s)
	})
	if err == nil && !made(s.Metadata.Annotations, u.vm) {
		err = taken("DataVolume", u.want.Metadata.Name, u.String(), u.vm)
	}
	return &s, err
}

// send sends the image once. taken says that CDI has all of it; neither that nor an error, that it may be
// tried again.
func (u *upload) send(ctx context.Context) (taken bool, err error) {
	token, err := u.token(ctx)
	if err != nil {
		return false, err
	}
	if err := u.proxy.choose(ctx, token); err != nil {
		return false, u.judge(ctx, err, 0)
	}
	body, err := u.open(ctx)
	if err != nil {
		return false, err
	}
	body.tell = u.progress.Sent
	err = u.proxy.post(ctx, token, body, stall)
	if err == nil {
		return true, nil
	}
	if broken := body.broken(); broken != nil { // the image, not the way
		return false, broken
	}
	return false, u.judge(ctx, err, body.sent())
}

// token asks for leave to upload. It is good for five minutes, and asked about only when an upload begins.
func (u *upload) token(ctx context.Context) (string, error) {
	request := map[string]any{
		"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
		"metadata": meta{Name: u.want.Metadata.Name, Namespace: u.opts.namespace()},
		"spec":     map[string]string{"pvcName": u.want.Metadata.Name},
	}
	var reply struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err := u.retry(ctx, func() error { return u.client.Create(ctx, tokens, u.opts.namespace(), request, &reply) })
	if err == nil && reply.Status.Token == "" {
		err = fault.New(fault.Corrupt, "CDI gave no upload token").WithHint("kubectl -n cdi logs deployment/cdi-apiserver")
	}
	return reply.Status.Token, err
}

// judge returns what cannot pass, of what went wrong after so many bytes. The rest is tried again: a
// pod that is not ready as long as patience lasts, a transfer that was cut a few times.
func (u *upload) judge(ctx context.Context, err error, sent int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	u.last = err
	var a *answer
	if errors.As(err, &a) {
		switch a.code {
		case http.StatusServiceUnavailable, http.StatusConflict: // not ready; or it has an image already, and is working on it
			return nil
		case http.StatusBadRequest:
			return fault.New(fault.Full, "%w", err).WithHint("the volume has less room than the disk: try another storageClass; %s", u.describe())
		case http.StatusNotFound:
			return fault.New(fault.NotFound, "%w", err).WithHint("is %s CDI's upload proxy? Say uploadProxy=https://HOST:PORT", u.proxy.url)
		case http.StatusRequestEntityTooLarge:
			return fault.New(fault.Unsupported, "%w", err).
				WithHint("something before CDI bounds uploads (nginx: annotation nginx.ingress.kubernetes.io/proxy-body-size: \"0\"), or use a forwarded port as uploadProxy")
		}
	}
	if u.failures++; u.failures >= maxFailures {
		return fault.New(fault.Transient, "sent %d times in vain, the last time %d bytes: %w", u.failures, sent, err).WithHint("%s", u.describe())
	}
	return nil
}

// tries is how often the API server is asked for one thing.
const tries = 5

// retry asks again while nobody answers, or an answer says that it may pass.
func (c *Cluster) retry(ctx context.Context, ask func() error) error {
	for n := 1; ; n++ {
		err := ask()
		if n == tries || !fault.Is(err, fault.Transient) && !fault.Is(err, fault.Unreachable) {
			return err
		}
		if pauseErr := pause(ctx, c.poll); pauseErr != nil {
			return pauseErr
		}
	}
}
