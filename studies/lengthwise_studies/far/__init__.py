"""Which training makes a real model use far context? A screen of forms, and the studies that followed from it."""
