package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// firstSignals is the first schema version in which topics have rows. Releases before it
// used two files of other formats instead of the files of a [Watch].
const firstSignals = 10

// moveSignals renames the files of older releases to today's names. The migration that
// follows adds the rows. If the process dies in between, files exist without rows. That
// only causes unnecessary reads; a row without a file would hide changes.
func (d database) moveSignals(dir string) error {
	for from, topic := range map[string]string{filepath.Join(dir, "gate"): "gate", d.path + "-limits": "limits"} {
		to := signalFile(d.real, topic)
		if from == to {
			continue
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// alignSignals makes missing files of topics that have a row, as after a restored backup of
// the database. If all is set, it updates row and file of every topic, because an older
// release has used the database.
func (s *Store) alignSignals(ctx context.Context, all bool) error {
	topics, err := s.topics(ctx)
	if err != nil {
		return fmt.Errorf("read the topics: %w", err)
	}
	for _, topic := range topics {
		w := s.Watch(topic)
		if size, err := w.announced(); !all && (err != nil || size > 0) {
			continue // a file that cannot be read causes an error where it is needed
		}
		if err := w.Update(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) topics(ctx context.Context) (topics []string, err error) {
	rows, err := s.conn.QueryContext(ctx, selectTopics)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var topic string
		if err := rows.Scan(&topic); err != nil {
			return nil, err
		}
		topics = append(topics, topic)
	}
	return topics, rows.Err()
}
