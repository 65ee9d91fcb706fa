"""Old name of `extension_record`."""

from lengthwise.models.extension import write_extension_files as write_extension_files
