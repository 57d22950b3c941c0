package credentials

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/decamp/decamp/internal/fault"
)

// Names of the Secret Service API 0.2.
const (
	busName        = "org.freedesktop.secrets"
	servicePath    = dbus.ObjectPath("/org/freedesktop/secrets")
	service        = "org.freedesktop.Secret.Service"
	collection     = "org.freedesktop.Secret.Collection"
	item           = "org.freedesktop.Secret.Item"
	noObject       = dbus.ObjectPath("/") // no object; as a prompt: none is required
	keyringTimeout = 20 * time.Second     // limit of all calls for one secret
)

// secret is the D-Bus type of a secret. The session is not encrypted: the bus is a socket of the user.
type secret struct {
	Session     dbus.ObjectPath
	Parameters  []byte // empty without encryption
	Value       []byte
	ContentType string
}

// keyring is a session with the Secret Service.
type keyring struct {
	conn    *dbus.Conn
	session dbus.ObjectPath // session of the service
}

// fileInstead is the remedy that names the other place.
const fileInstead = "; or store it in a file: decamp login NAME --store file"

// withKeyring calls do with the user's keyring. It opens no dialogs: a locked keyring is an error.
func (s Store) withKeyring(ctx context.Context, do func(context.Context, *keyring) error) error {
	address := s.Env("DBUS_SESSION_BUS_ADDRESS")
	if runtime := s.Env("XDG_RUNTIME_DIR"); address == "" && filepath.IsAbs(runtime) {
		address = "unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(runtime, "bus"))
	}
	if address == "" {
		return fault.New(fault.Unreachable, "no keyring: this login has no D-Bus session").WithHint("log in to a desktop session" + fileInstead)
	}
	ctx, cancel := context.WithTimeout(ctx, keyringTimeout)
	defer cancel()
	conn, err := connectBus(ctx, address)
	if err != nil {
		return keyringError("connect to D-Bus", err)
	}
	k := &keyring{conn: conn}
	var none dbus.Variant
	if err := k.call(ctx, servicePath, service+".OpenSession", "plain", dbus.MakeVariant("")).Store(&none, &k.session); err != nil {
		return keyringError("open a session", err)
	}
	defer k.call(ctx, k.session, "org.freedesktop.Secret.Session.Close") // without it, the service keeps the session until the process ends
	return do(ctx, k)
}

var (
	busMutex       sync.Mutex
	busConnections = map[string]*dbus.Conn{} // open connections by address; guarded by busMutex
)

// connectBus returns the connection of the process to a bus. It stays open until the process ends:
// gnome-keyring 42 sometimes crashes if connections follow each other.
func connectBus(ctx context.Context, address string) (*dbus.Conn, error) {
	busMutex.Lock()
	defer busMutex.Unlock()
	if conn := busConnections[address]; conn != nil && conn.Connected() {
		return conn, nil
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	conn, err := dbus.Connect(address, dbus.WithContext(life))
	if !stop() && err == nil { // ctx ended, which closes the connection
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	busConnections[address] = conn
	return conn, nil
}

// keyringError returns an error of the keyring with the remedy. It returns a fault and a cancellation
// unchanged.
func keyringError(what string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unreachable, "keyring: %s: %w", what, err).WithHint("check that a keyring such as gnome-keyring or KWallet runs" + fileInstead)
}

// errLocked is the error for a locked keyring.
func errLocked() error {
	return fault.New(fault.Denied, "the keyring is locked").WithHint("unlock it, for example by a login to the desktop" + fileInstead)
}

// call calls a method of the service.
func (k *keyring) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return k.conn.Object(busName, path).CallWithContext(ctx, method, 0, args...)
}

// attributesOf returns the attributes that identify the item of an account.
func attributesOf(account string) map[string]string {
	return map[string]string{"application": "decamp", "account": account}
}

// find returns the item of an account, or noObject if it does not exist. A locked item is an error.
func (k *keyring) find(ctx context.Context, account string) (dbus.ObjectPath, error) {
	var open, locked []dbus.ObjectPath
	err := k.call(ctx, servicePath, service+".SearchItems", attributesOf(account)).Store(&open, &locked)
	switch {
	case err != nil:
		return noObject, keyringError("search", err)
	case len(open) > 0:
		return open[0], nil
	case len(locked) > 0:
		return noObject, errLocked()
	}
	return noObject, nil
}

// getFromKeyring returns the secret of an account.
func (s Store) getFromKeyring(ctx context.Context, account string) (text string, err error) {
	err = s.withKeyring(ctx, func(ctx context.Context, k *keyring) error {
		path, err := k.find(ctx, account)
		if err != nil {
			return err
		}
		if path == noObject {
			return fault.New(fault.NotFound, "the keyring has no credential of %s any more", account).WithHint("store it again: decamp login NAME --store keyring" + fileInstead)
		}
		var found secret
		if err := k.call(ctx, path, item+".GetSecret", k.session).Store(&found); err != nil {
			return keyringError("read", err)
		}
		text = string(found.Value)
		return nil
	})
	return text, err
}

// setInKeyring stores the secret of an account in the default collection.
func (s Store) setInKeyring(ctx context.Context, account, text string) error {
	return s.withKeyring(ctx, func(ctx context.Context, k *keyring) error {
		var path dbus.ObjectPath
		if err := k.call(ctx, servicePath, service+".ReadAlias", "default").Store(&path); err != nil {
			return keyringError("find the default collection", err)
		}
		if path == noObject {
			return fault.New(fault.NotFound, "the keyring has no default collection").WithHint("create one, for example with seahorse" + fileInstead)
		}
		locked, err := k.conn.Object(busName, path).GetProperty(collection + ".Locked")
		if err != nil {
			return keyringError("read the default collection", err)
		}
		if is, _ := locked.Value().(bool); is {
			return errLocked()
		}
		properties := map[string]dbus.Variant{item + ".Label": dbus.MakeVariant("decamp: " + account), item + ".Attributes": dbus.MakeVariant(attributesOf(account))}
		var created, prompt dbus.ObjectPath
		value := secret{Session: k.session, Parameters: []byte{}, Value: []byte(text), ContentType: "text/plain; charset=utf8"}
		err = k.call(ctx, path, collection+".CreateItem", properties, value, true).Store(&created, &prompt)
		if err == nil && cmp.Or(prompt, noObject) != noObject {
			return errLocked()
		}
		if err != nil {
			return keyringError("store", err)
		}
		return nil
	})
}

// removeFromKeyring removes the item of an account, if it exists.
func (s Store) removeFromKeyring(ctx context.Context, account string) error {
	return s.withKeyring(ctx, func(ctx context.Context, k *keyring) error {
		path, err := k.find(ctx, account)
		if err != nil || path == noObject {
			return err
		}
		var prompt dbus.ObjectPath
		if err := k.call(ctx, path, item+".Delete").Store(&prompt); err != nil {
			return keyringError("remove", err)
		}
		return nil
	})
}
