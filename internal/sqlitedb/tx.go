package sqlitedb

import (
	"context"
	"database/sql/driver"
)

// tx is a transaction. One that may write has its place in the line until it ends.
type tx struct {
	driver.Tx
	c     *conn
	leave func()
	wrote bool
}

// BeginTx is part of driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	leave := func() {}
	if !o.ReadOnly {
		var err error
		if leave, err = c.pool.file.queue.enter(ctx); err != nil {
			return nil, err
		}
	}
	plain, err := c.plainConn.BeginTx(ctx, o)
	if err != nil {
		leave()
		return nil, err
	}
	c.tx = &tx{Tx: plain, c: c, leave: leave}
	return c.tx, nil
}

// Commit returns once the data is durable, if the pool promises that.
func (t *tx) Commit() error {
	err := t.Tx.Commit()
	t.endTx()
	if err != nil || !t.wrote {
		return err
	}
	return t.c.syncIfDurable()
}

func (t *tx) Rollback() error {
	defer t.endTx()
	return t.Tx.Rollback()
}

func (t *tx) endTx() {
	t.c.tx = nil
	t.leave()
}
