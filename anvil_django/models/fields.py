"""A text column that tells ``abc`` from ``ABC`` on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    # To the type checker it is the field it looks like: a subclass would need its plugin taught.
    ExactCharField = models.CharField
else:

    class ExactCharField(models.CharField):
        """A ``CharField`` for ids and keys: compared by the byte on MariaDB and MySQL too.

        Their default collations ignore case and accents, so different ids would meet in one row.
        """

        def db_parameters(self, connection: Any) -> Any:
            """The column's type, with a collation where the default would not do."""
            parameters = super().db_parameters(connection)
            if connection.vendor == "mysql" and not self.db_collation:
                parameters["collation"] = "utf8mb4_bin"
            return parameters
