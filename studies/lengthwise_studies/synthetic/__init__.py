"""Small Transformers on small tasks: does what they learn on short sequences hold on long ones?"""
